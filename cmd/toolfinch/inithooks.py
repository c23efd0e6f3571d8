# Hooks see every call of a view's tools: pre_call before it is made, post_call after.
# The file is read again when it or a module that it imports from here changes.
#
# Hooks and tools may be plain functions as well: these run in threads. In an async
# function, await what takes time: a loop or time.sleep would stall all others.
#
# context tells who calls what: view_name, tool_name and upstream_server as the server
# calls them, name (what the client sees), session, client, principal (None for nobody),
# headers (those that hook_headers allows), meta (the request's _meta).
#
# print(...) writes to toolfinch's log. A hook that fails fails the call, unless the
# configuration says on_error: continue.
import asyncio
import re
from typing import List

from mcp_proxy import HookResult, ProxyContext, ToolCallContext, custom_tool

KEY = re.compile(r"\b(?:sk|ghp|xoxb)[-_][A-Za-z0-9_-]{16,}")


async def pre_call(context: ToolCallContext, args: dict) -> HookResult:
    """HookResult(args={...}) is called instead; HookResult() leaves the arguments alone."""
    # Require authentication for everything but reading:
    # if context.principal is None and not context.tool_name.startswith("read_"):
    #     return HookResult(abort=True, abort_reason="log in first")

    # Give every tool the user it works for:
    # return HookResult(args={**args, "user_id": context.principal})

    return HookResult()


async def post_call(context: ToolCallContext, args: dict, result) -> HookResult:
    """result is the structured content, else text that is JSON as JSON, else the text."""
    return HookResult(result=redacted(result))


def redacted(value):
    """Hides what looks like a key of an API, wherever it stands."""
    if isinstance(value, str):
        return KEY.sub("[redacted]", value)
    if isinstance(value, list):
        return [redacted(item) for item in value]
    if isinstance(value, dict):
        return {name: redacted(item) for name, item in value.items()}
    return value


@custom_tool(name="call_together", description="Call several tools, which take no arguments, at once.")
async def call_together(tools: List[str], ctx: ProxyContext) -> dict:
    """The schema of the tool follows from the type hints; tools are named server.tool."""
    answers = await asyncio.gather(*(ctx.call_tool(tool) for tool in tools))
    return dict(zip(tools, answers))
