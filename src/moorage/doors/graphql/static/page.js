// GraphiQL on this server's own /graphql. The server tells by what it answers whether it is a subscription:
// one JSON document, or server-sent events until the client disconnects.
// A key goes into the Headers tab, {"authorization": "Bearer …"}.
"use strict";

const url = new URL("graphql", document.baseURI);

async function* answers(request, headers, signal) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...headers },
    body: JSON.stringify(request),
    signal,
  });
  if (!response.headers.get("content-type").startsWith("text/event-stream")) {
    yield await response.json();
    return;
  }
  for await (const [name, data] of events(response.body.pipeThrough(new TextDecoderStream()).getReader())) {
    if (name === "complete") return;
    yield JSON.parse(data);
  }
}

async function* events(reader) {
  let rest = "";
  for (let read = await reader.read(); !read.done; read = await reader.read()) {
    const parts = (rest + read.value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const fields = Object.fromEntries(part.split("\n").map((line) => line.split(/: (.*)/s)));
      if ("event" in fields) yield [fields.event, fields.data];
    }
  }
}

function fetcher(request, options) {
  const aborting = new AbortController();
  const iterator = answers(request, options?.headers ?? {}, aborting.signal);
  return {
    [Symbol.asyncIterator]() { return this; },
    next: () => iterator.next().catch((error) => { if (!aborting.signal.aborted) throw error; return { done: true }; }),
    async return() { aborting.abort(); return { done: true }; },
  };
}

const EXAMPLE = `# Sessions, newest first. Ctrl-Enter runs it.
# A key goes into the Headers tab below: {"authorization": "Bearer …"}
{
  agentSessions(limit: 10) {
    sessionId
    agentName
    state
    history(last: 3) { nodes { role text } }
  }
}
`;

// GraphiQL's editors are text areas without names, which a screen reader could not tell apart.
const EDITORS = {
  Query: ".graphiql-query-editor textarea",
  Variables: ".graphiql-editor-tool > .graphiql-editor:nth-of-type(1) textarea",
  Headers: ".graphiql-editor-tool > .graphiql-editor:nth-of-type(2) textarea",
  Result: ".result-window textarea",
};

function nameEditors() {
  for (const [name, selector] of Object.entries(EDITORS)) {
    const editor = document.querySelector(selector);
    if (editor && !editor.hasAttribute("aria-label")) editor.setAttribute("aria-label", name);
  }
}

const place = document.getElementById("graphiql");
new MutationObserver(nameEditors).observe(place, { childList: true, subtree: true });

const heading = React.createElement(GraphiQL.Logo, null, React.createElement("h1", null, "Moorage: GraphQL"));
ReactDOM.createRoot(place).render(
  React.createElement(GraphiQL, { fetcher, defaultQuery: EXAMPLE, shouldPersistHeaders: false }, heading),
);
