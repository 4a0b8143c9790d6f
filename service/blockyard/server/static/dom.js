// The page's elements. Text is only ever set as text, never as markup; what stays the same is not touched, so
// that selections hold and a screen reader is not woken.

export const at = (id) => document.getElementById(id);

export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setFlag(element, name, isOn) {
  element.toggleAttribute(`data-${name}`, isOn);
}

/** A new element: its text or its children, and attributes by name. */
export function make(tag, content = [], attributes = {}) {
  const element = document.createElement(tag);
  element.append(...[content].flat());
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** Make `list`, a <dl>, say `entries`: pairs of term and text. */
export function fillList(list, entries) {
  entries.forEach(([term, text], index) => {
    if (list.children.length <= 2 * index) list.append(make("dt"), make("dd"));
    setText(list.children[2 * index], term);
    setText(list.children[2 * index + 1], text);
  });
  while (list.children.length > 2 * entries.length) list.lastElementChild.remove();
}
