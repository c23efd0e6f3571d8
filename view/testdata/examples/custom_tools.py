# What is known of a topic, and the files that are called like it, in one call.
#
#   tool_views:
#     research:
#       custom_tools:
#         - module: custom_tools.contextual_search
import asyncio
from typing import Optional

from mcp_proxy import ProxyContext, ToolError, custom_tool


@custom_tool(name="contextual_search", description="Facts and files about a topic.")
async def contextual_search(ctx: ProxyContext, topic: str, limit: int = 10, folder: Optional[str] = None) -> dict:
    """
    Args:
        topic: one word
        folder: where to look for files
    """
    facts, files = await asyncio.gather(
        ctx.call_tool("memory.search_nodes", query=topic),
        ctx.call_tool("files.search_files", path=folder or ".", pattern=f"**/*{topic}*"),
        return_exceptions=True,
    )
    if isinstance(facts, ToolError) and isinstance(files, ToolError):
        raise ToolError(f"neither can be searched: {facts}; {files}")
    return {
        "facts": [] if isinstance(facts, ToolError) else facts["entities"][:limit],
        "files": [] if isinstance(files, ToolError) else files["content"].splitlines()[:limit],
    }
