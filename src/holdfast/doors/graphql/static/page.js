// GraphiQL on this server's own /graphql: queries by fetch, subscriptions by graphql-transport-ws.
// A key goes into the Headers tab, {"authorization": "Bearer …"}, and from there with both.
"use strict";

const url = new URL("graphql", document.baseURI);

async function* answers(request, headers) {
  const response = await fetch(url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json", ...headers },
    body: JSON.stringify(request),
  });
  yield await response.json();
}

function events(request, headers) {
  const waiting = [];
  let wake = () => {};
  let ended = false;
  const tell = (result) => { waiting.push(result); wake(); };
  const end = () => { ended = true; wake(); };
  const socket = new WebSocket(url.href.replace(/^http/, "ws"), "graphql-transport-ws");
  const say = (message) => socket.send(JSON.stringify(message));
  const heard = {
    connection_ack: () => say({ type: "subscribe", id: "1", payload: request }),
    next: ({ payload }) => tell(payload),
    error: ({ payload }) => { tell({ errors: payload }); end(); },
    complete: end,
    ping: () => say({ type: "pong" }),
  };
  socket.onopen = () => say({ type: "connection_init", payload: headers });
  socket.onmessage = ({ data }) => { const message = JSON.parse(data); heard[message.type]?.(message); };
  socket.onclose = ({ code, reason }) => { if (!ended) tell({ errors: [{ message: `closed: ${code} ${reason}` }] }); end(); };
  return {
    [Symbol.asyncIterator]() { return this; },
    async next() {
      while (!waiting.length && !ended) await new Promise((resolve) => { wake = resolve; });
      return waiting.length ? { value: waiting.shift(), done: false } : { value: undefined, done: true };
    },
    async return() { ended = true; socket.close(); return { value: undefined, done: true }; },
  };
}

function isSubscription(request, documentAST) {
  return documentAST?.definitions.some((each) => each.operation === "subscription"
    && (!request.operationName || each.name?.value === request.operationName));
}

function fetcher(request, options) {
  const headers = options?.headers ?? {};
  return isSubscription(request, options?.documentAST) ? events(request, headers) : answers(request, headers);
}

const EXAMPLE = `# Sessions, newest first. Ctrl-Enter runs it; the Headers tab is where a key goes:
# {"authorization": "Bearer …"}
{
  agentSessions(limit: 10) {
    sessionId
    agentName
    state
    history(last: 3) { nodes { role text } }
  }
}
`;

ReactDOM.createRoot(document.getElementById("graphiql")).render(
  React.createElement(GraphiQL, { fetcher, defaultQuery: EXAMPLE, shouldPersistHeaders: false }),
);
