// The chat page: put its parts together.
import { Api } from "./api.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Session } from "./session.js";
import { AgentState, SUSPENDED } from "./state.js";
import { Threads } from "./threads.js";
import { countAgain } from "./count.js";

const root = document.querySelector("[data-chat]");
const { agent, base, environment, person } = root.dataset;
const home = `${base}?environment=${encodeURIComponent(environment)}`;

const api = new Api({ environment, agent });
const conversation = new Conversation(root);
const state = new AgentState(root);
const session = new Session({ api, agent, state, conversation, thread: root.dataset.thread || null, onchange });
session.composer = new Composer(root, {
  send: (text) => session.send(text),
  stop: () => session.stop(),
  draftKey: () => `mandate.draft.${person}.${agent}.${environment}.${session.thread ?? "new"}`,
});
state.onchange = () => session.composer.close(state.suspended ? SUSPENDED : "");
const threads = new Threads(root, {
  api, base, environment, current: session.thread,
  onerased: () => window.location.assign(home),
});

function onchange(what) {
  if (what === "created") {
    history.replaceState(null, "", `${base}${session.thread}/?environment=${encodeURIComponent(environment)}`);
    threads.current = session.thread;
  }
  threads.refresh().catch(() => {}); // the list is a convenience; the conversation tells its own errors
  countAgain();
}

async function refused(refusal) {
  const problem = await state.explain(refusal);
  const gone = problem.status === 404;
  const message = gone ? "There is no such conversation, or it is not yours." : problem.message;
  if (gone) session.composer.close("There is nobody to write to here. Start a new conversation.");
  conversation.error({
    message,
    code: problem.code ?? "unexpected",
    requestId: problem.requestId,
    retry: gone || state.suspended ? null : () => session.open().catch(refused),
  });
}

// Back at this window, the person sees what holds now.
document.addEventListener("visibilitychange", async () => {
  if (document.hidden) return;
  await state.refresh();
  await session.settle();
});

session.composer.restore();
state.onchange();
session.composer.input.focus({ preventScroll: true });
threads.refresh().catch(() => {});
session.open().catch(refused);
