"""Settings of MCP hosts, used as those hosts do: by the published MCP client for Python."""

import asyncio

from httpx2 import AsyncClient
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

# What hosts call the servers, and the address of one.
SERVERS = ("mcpServers", "servers", "context_servers", "mcp_servers")
URLS = ("url", "httpUrl", "serverUrl")


async def listed(transport):
    async with Client(transport) as client:
        return {tool.name for tool in (await client.list_tools()).tools}


async def tools(server, environment):
    if "command" in server:
        environment = environment | server.get("env", {})
        program = StdioServerParameters(command=server["command"], args=server["args"], env=environment)
        return await listed(stdio_client(program))
    (url,) = (server[name] for name in URLS if name in server)
    async with AsyncClient(headers=server.get("headers", {}), timeout=30) as http:
        return await listed(streamable_http_client(url, http_client=http))


def servers_of(settings):
    """The servers that the settings of a host name; none if they are of something else."""
    return [server for name in SERVERS for server in settings.get(name, {}).values()]


def tools_of(server, environment):
    """The names of the tools that a host with this setting has."""
    return asyncio.run(tools(server, environment))
