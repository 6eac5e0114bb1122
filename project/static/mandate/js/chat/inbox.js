// The approvals inbox: the same cards as in the thread; deciding starts the run that resumes it.
import { Api, runInput } from "./api.js";
import { ApprovalCard } from "./approval.js";
import { Decisions } from "./decisions.js";
import { el } from "../dom.js";
import { readEvents } from "./sse.js";
import { countAgain } from "./count.js";

const apis = new Map();

function apiFor(environment) {
  if (!apis.has(environment)) apis.set(environment, new Api({ environment }));
  return apis.get(environment);
}

/** The run goes on in the server; here it is enough to know that it began. */
async function submit({ environment, agent, thread }, resume) {
  const input = runInput({ threadId: thread, runId: crypto.randomUUID(), resume });
  const response = await apiFor(environment).run(agent, input);
  for await (const { event } of readEvents(response)) {
    if (event.type === "RUN_ERROR") throw Object.assign(new Error(event.message), { code: event.code, extra: {}, status: 0 });
    return;
  }
}

for (const root of document.querySelectorAll("[data-thread]")) {
  const place = root.dataset;
  const cards = [...root.querySelectorAll("[data-interrupt]")].map((node) => new ApprovalCard(JSON.parse(node.dataset.interrupt), node));
  const group = new Decisions({
    cards,
    submit: (resume) => submit(place, resume),
    thread: () => apiFor(place.environment).thread(place.thread),
    onend: countAgain,
    link: () => el("a", { href: place.url }, "Open the conversation"),
  });
  root.append(group.bar);
}
