// A line diff for arguments: small texts, so the plain table of common subsequences is enough.

/** Lists of {kind: "same" | "removed" | "added", line}. */
export function lineDiff(before, after) {
  const a = before.split("\n");
  const b = after.split("\n");
  if (a.length * b.length > 4_000_000) {
    return [...a.map((line) => ({ kind: "removed", line })), ...b.map((line) => ({ kind: "added", line }))];
  }
  const table = Array.from({ length: a.length + 1 }, () => new Uint16Array(b.length + 1));
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i][j] = a[i] === b[j] ? table[i + 1][j + 1] + 1 : Math.max(table[i + 1][j], table[i][j + 1]);
    }
  }
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ kind: "same", line: a[i] });
      i += 1;
      j += 1;
    } else if (j >= b.length || (i < a.length && table[i + 1][j] >= table[i][j + 1])) {
      lines.push({ kind: "removed", line: a[i] });
      i += 1;
    } else {
      lines.push({ kind: "added", line: b[j] });
      j += 1;
    }
  }
  return lines;
}
