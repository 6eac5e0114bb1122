// The number beside "Approvals" in the navigation is the server's; this asks for it again.

export function countAgain() {
  document.body.dispatchEvent(new CustomEvent("mandate:approvals"));
}
