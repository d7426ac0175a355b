"""`python serve_script.py URL PORT`: the HTTP door on a store; says its port once it listens."""

import asyncio
import socket
import sys

import uvicorn

from holdfast import config
from holdfast.doors.http.app import Door
from holdfast.doors.http.gate import Gate


async def main(url: str, port: int) -> None:
    door = Door(config.open_deps(url, threaded=True), Gate())
    listening = socket.create_server(("127.0.0.1", port), reuse_port=False)
    server = uvicorn.Server(uvicorn.Config(door, lifespan="off", ws="none", log_level="warning"))
    listening.listen()
    print(listening.getsockname()[1], flush=True)
    await server.serve([listening])


asyncio.run(main(sys.argv[1], int(sys.argv[2])))
