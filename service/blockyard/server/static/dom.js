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

/** Make `list`, a <dl>, say `entries`: pairs of term and text, each in a <div>. */
export function fillList(list, entries) {
  entries.forEach(([term, text], index) => {
    if (list.children.length <= index) list.append(make("div", [make("dt"), make("dd")]));
    const [first, second] = list.children[index].children;
    setText(first, term);
    setText(second, text);
  });
  while (list.children.length > entries.length) list.lastElementChild.remove();
}
