"""Conversations that show what templates do with messages, tools, calls and reasoning, in OpenAI's form."""

ODD = "Größe 小麦 😀 é\u200b <b>\"it's\"</b> & \\n {{ x }} {% y %} \t\n  end"

WEIGH = {"type": "function", "function": {"name": "weigh", "description": "Weighs <grain> & says 'how much'.", "parameters": {
    "type": "object", "properties": {"sacks": {"type": "integer", "description": "How many?", "minimum": 1}, "unit": {"type": "string", "enum": ["kg", "t"], "default": "kg"}},
    "required": ["sacks"]}}}
BARE = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
NAMED = {"type": "function", "function": {"name": "stop", "description": "Stops the mill."}}
EMPTY = {"type": "function", "function": {"name": "ring", "description": "", "parameters": {}}}
NESTED = {"type": "function", "function": {"name": "order", "description": "Orders.\nTwo lines.", "parameters": {
    "type": "object", "additionalProperties": False, "$defs": {"size": {"type": "string"}}, "required": ["items"], "properties": {
        "items": {"type": "array", "description": "All.", "items": {"type": "object", "properties": {"name": {"type": "string"}, "count": {"type": "number"}}, "required": ["name"]}},
        "note": {"type": ["string", "null"], "description": "A note."}, "size": {"anyOf": [{"type": "integer"}, {"$ref": "#/$defs/size"}]},
        "deep": {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "boolean", "default": True}}}}},
        "ratio": {"type": "number", "minimum": 0.5, "default": 1.0}, "free": {"type": "object", "additionalProperties": {"type": "integer"}}}}}}
TYPES = {"type": "function", "function": {"name": "value", "description": "Two types.", "parameters": {
    "type": "object", "properties": {"v": {"type": ["integer", "null"], "description": "x"}, "w": {"type": ["string", "array"], "items": {"type": "string"}, "nullable": True}}}}}
RETURNS = {"type": "function", "function": {**WEIGH["function"], "name": "weigh_again", "strict": True}}


def user(content, **more):
    return {"role": "user", "content": content, **more}


def assistant(content, **more):
    return {"role": "assistant", "content": content, **more}


def call(name, arguments, id="call_0001"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(content, id="call_0001"):
    return {"role": "tool", "content": content, "tool_call_id": id}


ASK = user("How much flour?  ")
SYSTEM = {"role": "system", "content": "You are a miller.\n"}
CALL = assistant("", tool_calls=[call("weigh", {"sacks": 2, "unit": "kg"})])
SAID = assistant("I weigh.", tool_calls=[call("weigh", {"sacks": 2})])
THOUGHT = assistant("", reasoning_content="Two sacks?", tool_calls=[call("weigh", {"sacks": 2})])
PARALLEL = assistant("", tool_calls=[call("weigh", {"sacks": 1}, "call_0001"), call("now", {}, "call_0002")])
FULL = assistant("", tool_calls=[call("order", {"items": [{"name": "a \"b\" é", "count": 1.5}], "note": None, "deep": {"a": {"b": False}}, "text": "l1\nl2 <x> 'y'", "n": 10000000000, "e": []})])
ANSWER = assistant("Two sacks.")

MESSAGES = {
    "one": [ASK],
    "system first": [SYSTEM, ASK],
    "long": [SYSTEM, ASK, ANSWER, user("And tomorrow?"), assistant("Three."), user("Sure?")],
    "without system, long": [ASK, ANSWER, user("And tomorrow?"), assistant("\n Three.\n"), user("Sure?")],
    "system in the middle": [SYSTEM, ASK, ANSWER, {"role": "system", "content": "Be brief."}, user("Sure?")],
    "system last": [ASK, {"role": "system", "content": "Be brief."}],
    "two system first": [SYSTEM, {"role": "system", "content": "Be brief."}, ASK],
    "user twice": [ASK, user("Hello?")],
    "assistant first": [ANSWER, ASK],
    "empty contents": [{"role": "system", "content": ""}, user(""), assistant(""), user(" ")],
    "odd characters": [{"role": "system", "content": ODD}, user(ODD), assistant(ODD), user(ODD)],
    "named user": [user("Hello", name="Ada"), assistant("Hi"), user("Bye", name="Bob")],
    "marks": [user("<think>a</think>b <|im_end|> </s> [INST]"), assistant("<think>\nhm\n</think>\n\nWell."), user("<tool_call>{}</tool_call>")],
    "reasoning": [ASK, assistant("Two.", reasoning_content="\nCounting.\n"), user("Sure?")],
    "reasoning last": [ASK, assistant("Two.", reasoning_content="Counting.")],
    "answered": [ASK, ANSWER],
    "call": [ASK, CALL, tool("{\"kg\": 50}")],
    "call with text": [SYSTEM, ASK, SAID, tool("50 kg")],
    "call with reasoning": [ASK, THOUGHT, tool("50 kg"), ANSWER, user("Thanks")],
    "call and answer": [SYSTEM, ASK, CALL, tool("50"), ANSWER, user("And now?")],
    "call last": [ASK, CALL],
    "parallel calls": [ASK, PARALLEL, tool("50", "call_0001"), tool("12:00", "call_0002"), assistant("Fine."), user("Again?")],
    "calls in turn": [ASK, CALL, tool("50"), assistant("", tool_calls=[call("now", {}, "call_0002")]), tool("12:00", "call_0002")],
    "full arguments": [ASK, FULL, tool(ODD)],
    "short ids": [ASK, assistant("", tool_calls=[call("weigh", {"sacks": 2}, "abcdefghi")]), tool("50", "abcdefghi")],
}
TOOLS = {
    "no tools": None, "a tool": [WEIGH], "no description": [BARE], "no parameters": [NAMED], "empty": [EMPTY], "nested": [NESTED], "two types": [TYPES],
    "all": [WEIGH, BARE, NAMED, NESTED, TYPES, RETURNS],
}


def conversations():
    """Names and cases; a case has what a template is rendered with."""
    out = {}

    def add(name, messages, tools=None, **more):
        out[name] = {"messages": messages, "tools": tools, "add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>", **more}

    for name, messages in MESSAGES.items():
        add(name, messages)
        add(f"{name}; no prompt", messages, add_generation_prompt=False)
        for thinking in (True, False):
            add(f"{name}; thinking {str(thinking).lower()}", messages, thinking=thinking)
        add(f"{name}; a tool", messages, [WEIGH])
        add(f"{name}; all tools", messages, TOOLS["all"])
    for tools, list_of in TOOLS.items():
        for name in ("one", "system first", "call with text"):
            add(f"{name}; {tools}", MESSAGES[name], list_of)
    add("call with text; all tools, thinking", MESSAGES["call with text"], TOOLS["all"], thinking=True)
    add("no special tokens", MESSAGES["long"], bos_token=None, eos_token=None)
    return out
