// The rows of a table, made once each and changed where a text changes.

import { make, setText } from "./dom.js";

export class Rows {
  #table;
  #key;
  #columns;
  #rows = new Map();

  /**
   * In `table`, a <table> with its head. `key` tells entries apart; `columns` make of an entry the cells of its
   * row: `text`, and `mark`, `title`, `isNumber`, `link`, an address or null, and `under`, a line below which
   * may be empty, where they are given.
   */
  constructor(table, key, columns) {
    this.#table = table;
    this.#key = key;
    this.#columns = columns;
  }

  /** Show `entries`, in this order. */
  show(entries) {
    this.#table.hidden = entries.length === 0;
    const body = this.#table.tBodies[0];
    const wanted = new Set(entries.map(this.#key));
    for (const [key, row] of this.#rows) {
      if (wanted.has(key)) continue;
      row.remove();
      this.#rows.delete(key);
    }
    entries.forEach((entry, index) => {
      const row = this.#row(this.#key(entry));
      if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
      this.#columns.forEach((column, place) => {
        const cell = row.children[place];
        if (column.under) showUnder(cell, column.text(entry), column.under(entry));
        else if (column.link) showLink(cell, column.text(entry), column.link(entry));
        else setText(cell, column.text(entry));
        if (column.title) cell.title = column.title(entry);
        if (column.mark) cell.dataset.mark = column.mark(entry);
      });
    });
  }

  #row(key) {
    let row = this.#rows.get(key);
    if (!row) {
      row = make("tr", this.#columns.map(({ isNumber }) => make("td", "", isNumber ? { class: "number" } : {})));
      this.#rows.set(key, row);
    }
    return row;
  }
}

/** Make `cell` say `text`, and `under` in a line below if it is not empty. */
export function showUnder(cell, text, under) {
  if (cell.children.length === 0) cell.append(make("span"), make("small"));
  setText(cell.children[0], text);
  setText(cell.children[1], under);
}

/** Make `cell` say `text`, as a link to `address` if that is one of HTTP; null: as text alone. */
export function showLink(cell, text, address) {
  const isLink = address !== null && /^(?:https?:\/\/|#)/.test(address);
  if (isLink !== (cell.firstElementChild !== null)) cell.replaceChildren(...(isLink ? [make("a")] : []));
  const shown = isLink ? cell.firstElementChild : cell;
  setText(shown, text);
  if (isLink && shown.getAttribute("href") !== address) shown.setAttribute("href", address);
}
