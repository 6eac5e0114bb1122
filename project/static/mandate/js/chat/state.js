// What of the agent is live, as the header of the conversation tells it.
import { setSanitisedHtml, slot } from "../dom.js";
import { Problem } from "./api.js";

export const SUSPENDED = "This agent is suspended. It answers again once a manager of its team resumes it.";
const REFUSED = "The chat no longer takes your session. Reload the page to sign in again.";

export class AgentState {
  constructor(root) {
    this.root = root;
    this.onchange = () => {};
  }

  get #pill() {
    return this.root.querySelector("#agent-live");
  }

  get suspended() {
    return this.#pill.dataset.state === "suspended";
  }

  /** Ask the server again; when it does not answer, what stood stands. */
  async refresh() {
    const pill = this.#pill;
    try {
      const response = await fetch(pill.dataset.url);
      if (!response.ok || response.redirected) return;
      setSanitisedHtml(slot(this.root, "agent-state"), await response.text());
    } catch {
      // the call that made us ask tells its own error
    }
    this.onchange();
  }

  /** The same refusal in words for the person; a refusal may mean that the header is stale. */
  async explain(problem) {
    if (!(problem instanceof Problem) || !problem.status) return problem;
    await this.refresh();
    if (problem.code !== "token_invalid") return problem;
    const [code, detail] = this.suspended ? ["suspended", SUSPENDED] : [problem.code, REFUSED];
    return new Problem({ ...problem.extra, status: problem.status, code, detail });
  }
}
