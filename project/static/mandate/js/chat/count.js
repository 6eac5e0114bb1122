// The number beside "Approvals" in the navigation.

/** Count the threads that wait for a decision, as the server tells them. */
export async function showCount(api) {
  const { threads } = await api.threads();
  setCount(threads.reduce((sum, thread) => sum + (thread.open_approvals ?? 0), 0));
}

export function setCount(count) {
  const badge = document.querySelector("[data-approval-count]");
  badge.hidden = count === 0;
  badge.firstChild.data = String(count);
}
