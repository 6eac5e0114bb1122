// The chat page: put its parts together.
import { Api } from "./api.js";
import { Composer } from "./composer.js";
import { Conversation } from "./conversation.js";
import { Session } from "./session.js";
import { Threads } from "./threads.js";
import { countAgain } from "./count.js";

const root = document.querySelector("[data-chat]");
const { agent, base, environment } = root.dataset;
const home = `${base}?environment=${encodeURIComponent(environment)}`;

const api = new Api({ environment, agent });
const conversation = new Conversation(root);
const session = new Session({ api, agent, conversation, thread: root.dataset.thread || null, onchange });
session.composer = new Composer(root, { send: (text) => session.send(text), stop: () => session.stop() });
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

function refused(problem) {
  const gone = problem.status === 404;
  conversation.error({
    message: gone ? "There is no such conversation, or it is not yours." : problem.message,
    code: problem.code ?? "unexpected",
    requestId: problem.requestId,
    retry: gone ? null : () => session.open().catch(refused),
  });
}

session.composer.input.focus({ preventScroll: true });
threads.refresh().catch(() => {});
session.open().catch(refused);
