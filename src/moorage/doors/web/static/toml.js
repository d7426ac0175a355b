/** A definition as readable TOML. Pure. */

/** @param {string} role agent, worker or tool @param {Record<string, any>} definition */
export function toToml(role, definition) {
  return table([role], definition).join("\n") + "\n";
}

/** @param {string[]} path @param {Record<string, any>} fields @returns {string[]} */
function table(path, fields) {
  const plain = Object.entries(fields).filter(([, value]) => !isTable(value));
  const below = Object.entries(fields).filter(([, value]) => isTable(value));
  const isFolder = !plain.length && below.length > 0; // `mcp_servers` itself has no fields
  const mine = isFolder ? [] : [`[${path.map(key).join(".")}]`, ...plain.map(([name, value]) => `${key(name)} = ${inline(value)}`)];
  const deepest = path.length >= 3; // headers and variables of a server are inline tables
  const rest = below.flatMap(([name, value]) => (deepest ? [`${key(name)} = ${inline(value)}`] : ["", ...table([...path, name], value)]));
  return [...mine, ...(isFolder ? rest.slice(1) : rest)];
}

/** @param {any} value @returns {string} */
function inline(value) {
  if (typeof value === "string") return text(value);
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (isTable(value)) return `{ ${Object.entries(value).map(([name, each]) => `${key(name)} = ${inline(each)}`).join(", ")} }`;
  return String(value);
}

/** @param {string} value */
function text(value) {
  const quoted = JSON.stringify(value).replaceAll("\x7f", "\\u007f");
  if (!value.includes("\n")) return quoted;
  const lines = quoted.slice(1, -1).replaceAll("\\n", "\n").replaceAll('\\"', '"').replaceAll('"""', '""\\"');
  return /\\\n|\\$|"$/.test(lines) || value.includes("\\") ? quoted : `"""\n${lines}"""`;
}

/** @param {string} name */
const key = (name) => (/^[A-Za-z0-9_-]+$/.test(name) ? name : JSON.stringify(name));
/** @param {any} value */
const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
