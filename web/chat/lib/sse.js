// Server-sent events of a fetch response.

/**
 * Splits text that arrives in arbitrary pieces into the data of events. Comments (": ping") are dropped.
 * @returns {{push: (piece: string) => string[]}}
 */
export const eventSplitter = () => {
  let rest = "";
  return {
    push(piece) {
      rest += piece;
      const events = [];
      for (;;) {
        const end = rest.search(/\r?\n\r?\n/);
        if (end < 0) return events;
        const block = rest.slice(0, end);
        rest = rest.slice(end).replace(/^\r?\n\r?\n/, "");
        const data = block.split(/\r?\n/).filter((line) => line.startsWith("data:"))
          .map((line) => line.slice(5).replace(/^ /, ""));
        if (data.length > 0) events.push(data.join("\n"));
      }
    },
  };
};

/**
 * Yields the JSON of each event until "[DONE]" or the end of the stream.
 * @param {ReadableStream<Uint8Array>} stream
 */
export async function* readEvents(stream) {
  const reader = stream.getReader();
  const decoder = new TextDecoder();
  const splitter = eventSplitter();
  try {
    for (;;) {
      const {done, value} = await reader.read();
      for (const data of splitter.push(decoder.decode(value ?? new Uint8Array(), {stream: !done}))) {
        if (data === "[DONE]") return;
        yield JSON.parse(data);
      }
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
