# Notes of a user stay that user's: the argument owner is who is authenticated, and
# the results have nobody else's.
#
#   python: {inherit_env: [NOTES_ADMIN]}
#   tool_views:
#     notes:
#       hooks: {pre_call: memory.inject, post_call: memory.own_only}
#       tools: {notes-server: {"*": {}}}
import os

from mcp_proxy import HookResult, ToolCallContext


async def inject(context: ToolCallContext, args: dict) -> HookResult:
    if not context.principal:
        return HookResult(abort=True, abort_reason="nobody is authenticated")
    return HookResult(args={**args, "owner": context.principal})


async def own_only(context: ToolCallContext, args: dict, result) -> HookResult:
    if context.principal == os.environ.get("NOTES_ADMIN") or not isinstance(result, list):
        return HookResult()  # unchanged
    return HookResult(result=[note for note in result if note["owner"] == context.principal])
