// Server-sent events out of a fetch response: EventSource can neither POST nor send a header.

/** Yields {id, event}: the event's number in its run (or null) and the parsed JSON. */
export async function* readEvents(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let id = null;
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split(/\r\n|\n|\r(?!$)/);
      rest = lines.pop();
      for (const line of lines) {
        if (line === "") {
          if (data.length) yield { id, event: JSON.parse(data.join("\n")) };
          data = [];
          continue;
        }
        const [, field, text] = /^([^:]*):? ?(.*)$/s.exec(line);
        if (field === "data") data.push(text);
        else if (field === "id" && /^\d+$/.test(text)) id = Number(text);
      }
    }
  } finally {
    reader.cancel().catch(() => {}); // the run goes on without us
  }
}
