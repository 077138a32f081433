"""Models of the tests: the built-in one, which continues texts, and the same with a chat template."""

import pytest

from gristmill import LLM

#: A template with reasoning nowhere and calls in the form of Hermes.
TEMPLATE = """\
{%- if tools %}<|system|>
Call with <tool_call>{"name": NAME, "arguments": {}}</tool_call>:
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
{% endif -%}
{%- for message in messages -%}
<|{{ message.role }}|>
{%- if message.content %}{{ message.content }}{% endif %}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor %}
{% endfor -%}
{%- if add_generation_prompt %}<|assistant|>
{% endif -%}
"""


@pytest.fixture(scope="session")
def llm():
    with LLM("builtin", ctx=512, threads=2, device="cpu") as llm:
        yield llm


@pytest.fixture(scope="session")
def chat_llm():
    with LLM("builtin", ctx=1024, threads=2, device="cpu", chat_template=TEMPLATE, parallel=4) as llm:
        yield llm
