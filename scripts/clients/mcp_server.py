"""A server of the Model Context Protocol with one tool, which returns a word: python mcp_server.py WORD."""

import json
import sys

TOOL = dict(
    name="word_of",
    description="The word of a place.",
    inputSchema=dict(type="object", properties=dict(place=dict(type="string")), required=["place"]),
    annotations=dict(readOnlyHint=True, destructiveHint=False, openWorldHint=False),
)


def result(method, params):
    match method:
        case "initialize":
            about = dict(name="mill", version="1")
            return dict(protocolVersion=params["protocolVersion"], capabilities=dict(tools={}), serverInfo=about)
        case "tools/list":
            return dict(tools=[TOOL])
        case "tools/call":
            word = sys.argv[1] if params["arguments"] == dict(place="mill") else "none"
            return dict(content=[dict(type="text", text=word)])
        case "ping":
            return {}


for line in sys.stdin:
    request = json.loads(line)
    if "id" in request:
        made = result(request["method"], request.get("params"))
        error = dict(error=dict(code=-32601, message="no such method"))
        reply = error if made is None else dict(result=made)
        print(json.dumps(dict(jsonrpc="2.0", id=request["id"], **reply)), flush=True)
