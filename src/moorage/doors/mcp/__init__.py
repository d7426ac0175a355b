"""The MCP door: sessions, agents and tools for hosts that speak the Model Context Protocol.

`door` answers at `/mcp` of a server, `stdio` on a process's own input and output; behind both stands one `server`,
whose tools are a table (`tools`) over the object that every door calls.
"""
