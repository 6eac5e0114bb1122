// Chats once with a published agent through the real AG-UI client, answers every interrupt as the
// fourth argument says, and prints what happened as one JSON document.
//
// Usage: node client.mjs URL TOKEN PROMPT '{"approved": true}'
import { HttpAgent } from "@ag-ui/client";

const [url, token, prompt, answer] = process.argv.slice(2);
const agent = new HttpAgent({ url, headers: { Authorization: `Bearer ${token}` } });
const runs = [];

async function run(parameters) {
  const events = [];
  await agent.runAgent(parameters, { onEvent: ({ event }) => void events.push(event) });
  runs.push({
    types: events.map((event) => event.type),
    outcome: events.at(-1)?.outcome ?? null,
    error: events.find((event) => event.type === "RUN_ERROR") ?? null,
    interrupts: agent.pendingInterrupts,
  });
}

try {
  agent.addMessage({ id: crypto.randomUUID(), role: "user", content: prompt });
  await run({});
  for (let turns = 0; agent.pendingInterrupts.length > 0 && turns < 3; turns += 1) {
    const resume = agent.pendingInterrupts.map((interrupt) => ({
      interruptId: interrupt.id,
      status: "resolved",
      payload: JSON.parse(answer),
    }));
    await run({ resume });
  }
  console.log(JSON.stringify({ threadId: agent.threadId, runs, messages: agent.messages }));
} catch (error) {
  console.log(JSON.stringify({ failed: String(error), status: error.status, runs }));
  process.exitCode = 1;
}
