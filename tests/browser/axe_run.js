// Runs axe-core on the page, not twice on what must come out alike. Returns what is serious, and,
// by numbers, which looks are good to read; `legible` are those that are known to be.
async ([contrastOnly, legible]) => {
  const known = new Set(legible);
  const kept = new Set(["class", "role", "scope", "style", "tabindex", "type"]);
  const repeated = [];
  const unknown = new Map();

  const number = (text) => {
    let high = 2166136261;
    let low = 5381;
    for (let i = 0; i < text.length; i += 1) {
      high = Math.imul(high ^ text.charCodeAt(i), 16777619);
      low = Math.imul(low, 33) ^ text.charCodeAt(i);
    }
    return (high >>> 0) * 2 ** 21 + ((low >>> 0) % 2 ** 21);
  };
  const look = (one) => {
    const style = getComputedStyle(one);
    return [
      one.tagName, style.display, style.visibility, style.position, style.overflow, style.opacity,
      style.color, style.fill, style.backgroundColor, style.backgroundImage, style.filter,
      style.fontSize, style.fontWeight, style.textDecorationLine, style.textShadow,
    ].join();
  };
  const refers = (name, value) =>
    (name === "for" || /^aria-(.*by|controls|owns)$/.test(name)) &&
    value.split(" ").every((id) => document.getElementById(id));
  // Of most attributes only whether they say something: of aria-expanded, what.
  const kind = ({ name, value }) =>
    kept.has(name) || (name.startsWith("aria-") && value.length < 6)
      ? `${name}=${value}`
      : `${name} ${value.trim() !== ""} ${refers(name, value)}`;
  // How it is made, with all that is in it. Whether its texts can be read is a matter of how it and
  // what is around it look.
  const visit = (one, around) => {
    const own = look(one);
    const seen = number(`${around} ${own}`);
    const made = new Set();
    let says = one.matches("input, select, textarea");
    const inside = [...one.childNodes].map((child) => {
      if (child.nodeType === Node.ELEMENT_NODE) {
        const shape = visit(child, seen);
        if (made.has(shape)) repeated.push(child);
        made.add(shape);
        return shape;
      }
      const text = child.nodeType === Node.TEXT_NODE && child.data.trim() !== "";
      says ||= text;
      return text;
    });
    if (says && !known.has(seen) && !unknown.has(seen) && one.checkVisibility()) {
      unknown.set(seen, one);
    }
    const attributes = [...one.attributes].map(kind).sort();
    return number([own, attributes, one.labels?.length, inside].join(";"));
  };
  visit(document.body, 0);

  const violations = [];
  const run = async (where, options) => {
    const found = await axe.run(where, { resultTypes: ["violations"], preload: false, ...options });
    violations.push(...found.violations);
    return found.violations;
  };
  if (!contrastOnly) {
    const left = axe._audit.rules.filter(
      ({ id, impact }) => id === "color-contrast" || impact === "minor" || impact === "moderate",
    );
    const rules = Object.fromEntries(left.map(({ id }) => [id, { enabled: false }]));
    await run({ include: [document], exclude: repeated }, { rules });
  }
  let found = [];
  if (unknown.size > 0) {
    found = await run({ include: [...unknown.values()] }, { runOnly: ["color-contrast"] });
  }
  const serious = violations
    .filter(({ impact }) => ["serious", "critical"].includes(impact))
    .map(
      ({ impact, id, help, nodes }) =>
        `${impact} ${id}: ${help}: ` +
        nodes.slice(0, 4).map(({ target }) => target.join(" ")).join(" | "),
    );
  return [serious, found.length > 0 ? [] : [...unknown.keys()]];
}
