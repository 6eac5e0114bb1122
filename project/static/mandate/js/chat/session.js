// One conversation's life: start runs, follow their streams, re-attach, stop, decide.
import { ApprovalCard } from "./approval.js";
import { Problem, runInput } from "./api.js";
import { Decisions } from "./decisions.js";
import { el } from "../dom.js";
import { readEvents } from "./sse.js";

const RETRIES = 6;
const LOST = { code: "stream_lost", message: "The connection was lost and could not be restored. The run may still go on: reload to see." };

const pause = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

export class Session {
  constructor({ api, agent, state, conversation, thread, onchange }) {
    this.api = api;
    this.agent = agent;
    this.state = state;
    this.view = conversation;
    this.thread = thread;
    this.onchange = onchange;
    this.composer = null;
    this.run = null;
    this.decisions = null;
  }

  /** Rebuild from the server, then follow what still runs. */
  async open() {
    if (!this.thread) {
      this.view.greet();
      return;
    }
    const thread = await this.#rebuild();
    await this.#followIfRunning(thread);
  }

  async #rebuild() {
    const thread = await this.api.thread(this.thread);
    this.view.load(thread.messages, { failed: (error) => this.#failed(error) });
    this.view.record(thread.approvals);
    if (thread.interrupts.length) this.#ask(thread.interrupts);
    this.view.toLatest();
    return thread;
  }

  /** The messages hold what happened up to `lastSeq`; the stream tells the rest. */
  async #followIfRunning({ run }) {
    if (run?.state === "running") await this.#follow({ id: run.id, after: run.lastSeq });
  }

  /** A new user turn. Open approvals are cancelled by the same request, never behind its back. */
  async send(text) {
    const threadId = this.thread ?? crypto.randomUUID();
    const input = runInput({ threadId, runId: crypto.randomUUID(), text, resume: this.#cancelled() });
    this.view.addUser(input.messages[0].id, text);
    this.view.toLatest();
    await this.#submit(input);
  }

  /** Sent again with the same run id, a turn that the server took after all is not taken twice. */
  async #submit(input) {
    try {
      await this.#start(input, () => {
        if (!this.thread) {
          this.thread = input.threadId;
          this.onchange("created");
        }
        this.decisions?.settleAll("You went on with another message. Nothing was done.");
      });
    } catch (problem) {
      await this.#problem(problem, () => this.#submit(input));
    }
  }

  #cancelled() {
    return (this.decisions?.alive ?? []).map((card) => ({ interruptId: card.interrupt.id, status: "cancelled" }));
  }

  /** Decisions of all open cards; resolves when the run that carries them has begun. */
  async decide(resume) {
    const input = runInput({ threadId: this.thread, runId: crypto.randomUUID(), resume });
    let begun;
    const started = new Promise((resolve) => { begun = resolve; });
    const whole = this.#start(input, () => { this.view.resumeTools(); begun(); });
    whole.catch((problem) => this.run === null || this.#problem(problem));
    try {
      await Promise.race([started, whole]);
    } catch (problem) {
      throw await this.state.explain(problem);
    }
  }

  async #start(input, onstart) {
    this.#begin({ id: input.runId });
    let response;
    try {
      response = await this.api.run(this.agent, input, this.run.abort.signal);
    } catch (problem) {
      this.#end();
      throw problem;
    }
    onstart();
    this.state.refresh();
    await this.#consume(response);
  }

  async #follow(run) {
    this.#begin(run);
    try {
      await this.#consume(await this.api.attach(this.thread, this.run.id, this.run.after, this.run.abort.signal));
    } catch (problem) {
      this.#end();
      await this.#problem(problem);
    }
  }

  #begin({ id, after = 0 }) {
    this.run = { id, after, stopping: false, abort: new AbortController() };
    this.view.setThinking(true);
    this.composer.setRunning(true);
    this.composer.setPending(false);
  }

  #end() {
    this.run = null;
    this.view.setThinking(false);
    this.composer.setRunning(false);
    this.composer.setPending(Boolean(this.decisions?.alive.length));
  }

  /** Read to the terminal event; a broken connection is taken up again after the last number. */
  async #consume(response) {
    let stream = response;
    for (let attempt = 0; attempt < RETRIES; attempt += 1) {
      try {
        for await (const { id, event } of readEvents(stream)) {
          if (id !== null) {
            if (id <= this.run.after) continue;
            this.run.after = id;
          }
          attempt = 0;
          if (event.type === "RUN_FINISHED" || event.type === "RUN_ERROR") {
            await this.#finish(event);
            return;
          }
          this.view.apply(event);
        }
      } catch (error) {
        if (error.name === "AbortError") return;
      }
      await pause(Math.min(400 * 2 ** attempt, 5000));
      try {
        stream = await this.api.attach(this.thread, this.run.id, this.run.after, this.run.abort.signal);
      } catch (error) {
        if (!(error instanceof Problem) || (error.status !== 0 && error.status < 500)) break;
        stream = new Response("");
      }
    }
    this.#end();
    this.#failed(LOST);
  }

  async #finish(event) {
    const outcome = event.outcome?.type ?? "success";
    this.#end();
    if (event.type === "RUN_ERROR") {
      this.view.closeTools("unknown");
      this.view.settleLast();
      this.#failed(event);
      this.composer.unqueue();
    } else if (outcome === "interrupt") {
      this.view.closeTools("unknown", new Set(event.outcome.interrupts.map((one) => one.toolCallId)));
      this.view.settleLast();
      this.#ask(event.outcome.interrupts);
      this.view.announce("A decision is waiting for you.");
      this.composer.unqueue();
    } else if (outcome === "cancelled") {
      this.view.closeTools("stopped");
      this.view.announce("Stopped. What was said so far is kept.");
      this.composer.unqueue();
    } else {
      this.view.settleLast();
      this.view.announce("The answer is complete.");
    }
    await this.#polish();
    this.onchange("ended");
    const next = this.run ? "" : this.composer.takeQueued();
    if (next) await this.send(next);
  }

  /** The server's sanitised markdown takes the place of the plain text. */
  async #polish() {
    try {
      this.view.load((await this.api.thread(this.thread)).messages);
    } catch {
      // the plain text stands; a reload brings the rest
    }
  }

  /** Cards ended without a run of this page: show what the server knows. */
  async #resync() {
    const thread = await this.api.thread(this.thread);
    if (this.run) return;
    this.view.load(thread.messages);
    if (thread.interrupts.length) this.#ask(thread.interrupts);
    else await this.#followIfRunning(thread);
  }

  #ask(interrupts) {
    this.decisions?.stop();
    const cards = interrupts.map((interrupt) => new ApprovalCard(interrupt));
    this.decisions = new Decisions({
      cards,
      submit: (resume) => this.decide(resume),
      thread: () => this.api.thread(this.thread),
      onend: () => {
        this.composer.setPending(false);
        this.onchange("decided");
        if (!this.run) this.#resync().catch(() => {}); // the cards already say what happened
      },
    });
    this.view.place(el("div", { class: "approval-group" }, ...cards.map((card) => card.root), this.decisions.bar));
    this.composer.setPending(true);
  }

  #failed({ message, code, metadata = {} }) {
    const text = this.view.lastUserText;
    const retry = text ? () => this.send(text) : null;
    this.view.error({ message, code: code ?? "error", requestId: metadata?.request_id ?? "", retry });
    this.view.announce("The run failed.");
  }

  /** A refusal: say it in plain words, and show what else ended with it. */
  async #problem(refusal, retry = null) {
    const problem = await this.state.explain(refusal);
    await this.settle();
    this.view.error({ message: problem.message, code: problem.code ?? "unexpected", requestId: problem.requestId ?? "", retry });
  }

  /** Cards that something else than this page ended say so. */
  async settle() {
    if (this.state.suspended) this.decisions?.settleSuspended();
    else await this.decisions?.refresh();
  }

  async stop() {
    if (!this.run || this.run.stopping) return;
    const { run } = this;
    run.stopping = true;
    this.composer.stopButton.disabled = true;
    try {
      await this.api.cancel(this.thread, run.id);
    } catch (problem) {
      run.stopping = false;
      this.composer.stopButton.disabled = false;
      if (this.run === run) this.#problem(problem);
    }
  }
}
