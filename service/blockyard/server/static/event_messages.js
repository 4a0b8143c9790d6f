// Server-sent events from text that comes in pieces: what the browser's own EventSource does, which sends no token.
// A line ends with LF or CR LF.

export class EventMessages {
  #rest = ""; // a line that is not whole yet
  #event = "";
  #data = [];

  /** The messages, `{event, data}`, that end in `text`, which goes on where the text before it ended. */
  read(text) {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop();
    return lines.map((line) => this.#take(line.replace(/\r$/, ""))).filter((message) => message !== null);
  }

  #take(line) {
    if (line === "") return this.#end();
    const [, name, value] = line.match(/^([^:]*)(?:: ?)?(.*)$/);
    if (name === "event") this.#event = value;
    if (name === "data") this.#data.push(value);
    return null; // also of a comment, whose name is empty, and of what is not needed: id and retry
  }

  #end() {
    const message = { event: this.#event || "message", data: this.#data.join("\n") };
    const isEmpty = this.#data.length === 0;
    this.#event = "";
    this.#data = [];
    return isEmpty ? null : message;
  }
}
