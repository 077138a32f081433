"""Published libraries over the Python package, unchanged: each part is an example of the library's own documentation.

`cargo xtask prove python` installs them and runs this with a small published model:

    python scripts/python/integrations.py MODEL.gguf [PART...]
"""

import sys
import time
import traceback
from typing import Literal

import pydantic

MODEL = sys.argv[1]
PARTS = {}


def part(function):
    PARTS[function.__name__] = function
    return function


class Animal(pydantic.BaseModel):
    """An animal."""

    name: str = pydantic.Field(max_length=20)
    legs: int = pydantic.Field(ge=0, le=8)


def llm():
    import gristmill

    return gristmill.LLM(MODEL, ctx=2048, parallel=4)


QUESTION = "What is the capital of France?"


def answer(model, tokens=40):
    """What the model answers without a library between."""
    return model.chat(QUESTION, max_tokens=tokens, temperature=0).content


def llama(**options):
    import gristmill.llama_cpp

    gristmill.llama_cpp.install()
    return gristmill.llama_cpp.Llama(MODEL, n_ctx=2048, verbose=False, **options)


@part
def langchain_llamacpp():
    llama().close()
    from langchain_community.embeddings import LlamaCppEmbeddings
    from langchain_community.llms import LlamaCpp

    model = LlamaCpp(model_path=MODEL, n_ctx=512, max_tokens=12, temperature=0, verbose=False, stop=["\n\n"])
    text = model.invoke("The capital of France is")
    assert "Paris" in text, text
    assert "".join(model.stream("The capital of France is")) == text
    assert model.get_num_tokens("The dog") > 1
    model.client.close()
    vectors = LlamaCppEmbeddings(model_path=MODEL, n_ctx=512, verbose=False).embed_documents(["a dog", "a cat"])
    assert len(vectors) == 2 and len(vectors[0]) > 100


@part
def langchain_chat_llamacpp():
    llama().close()
    from langchain_community.chat_models import ChatLlamaCpp
    from langchain_core.tools import tool

    @tool
    def weather(city: Literal["Paris", "Rome"]) -> str:
        """Get the weather of a city."""
        return city

    model = ChatLlamaCpp(model_path=MODEL, n_ctx=1024, max_tokens=60, temperature=0, verbose=False)
    reply = model.invoke([("system", "Answer in one word."), ("human", "What is the capital of France?")])
    assert "Paris" in reply.content, reply
    streamed = "".join(chunk.content for chunk in model.stream("What is the capital of France?"))
    assert "Paris" in streamed, streamed
    call = {"type": "function", "function": {"name": "weather"}}
    reply = model.bind_tools([weather], tool_choice=call).invoke("What is the weather in Rome?")
    assert reply.tool_calls[0]["name"] == "weather" and reply.tool_calls[0]["args"]["city"] in ("Paris", "Rome"), reply
    animal = model.with_structured_output(Animal).invoke("Describe a dog.")
    assert isinstance(animal, Animal), animal


@part
def llama_index_llama_cpp():
    llama().close()
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.llama_cpp import LlamaCPP

    def prompt(messages):
        return "".join(f"<|im_start|>{m.role.value}\n{m.content}<|im_end|>\n" for m in messages) + "<|im_start|>assistant\n"

    model = LlamaCPP(
        model_path=MODEL,
        temperature=0.0,
        max_new_tokens=24,
        context_window=1024,
        model_kwargs={"n_gpu_layers": -1},
        messages_to_prompt=prompt,
        completion_to_prompt=lambda text: text,
        verbose=False,
    )
    text = model.complete("The capital of France is").text
    assert "Paris" in text, text
    assert "".join(chunk.delta for chunk in model.stream_complete("The capital of France is")) == text
    assert "Paris" in model.chat([ChatMessage(role="user", content="What is the capital of France?")]).message.content
    assert model.metadata.context_window == 1024


@part
def outlines_llamacpp():
    model_of_library = llama()
    import outlines

    model = outlines.from_llamacpp(model_of_library)
    answer = model("Is a dog an animal?", Literal["yes", "no"], max_tokens=4)
    assert answer in ("yes", "no"), answer

    # Outlines does not enforce the bounds of numbers.
    class Pet(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=12)
        is_dog: bool

    Pet.model_validate_json(model("Describe a dog as JSON.", Pet, max_tokens=80))
    digits = "".join(model.stream("A number:", outlines.regex("[0-9]{3}"), max_tokens=8))
    assert len(digits) == 3 and digits.isdigit(), digits


@part
def instructor_llama_cpp():
    model = llama()
    import instructor

    create = instructor.patch(create=model.create_chat_completion_openai_v1, mode=instructor.Mode.JSON_SCHEMA)
    animal = create(
        messages=[{"role": "user", "content": "Describe a dog."}], response_model=Animal, max_tokens=100, temperature=0
    )
    assert isinstance(animal, Animal)


@part
def instructor_openai():
    import gristmill
    import instructor

    client = instructor.from_openai(gristmill.openai(llm()), mode=instructor.Mode.JSON_SCHEMA)
    animal = client.chat.completions.create(
        model="any", messages=[{"role": "user", "content": "Describe a dog."}], response_model=Animal, max_tokens=100
    )
    assert isinstance(animal, Animal)


@part
def langchain_openai():
    from gristmill.transport import http_client
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    model = llm()
    common = {"api_key": "none", "base_url": "http://localhost/v1", "http_client": http_client(model)}
    chat = ChatOpenAI(model="any", temperature=0, max_tokens=60, **common)
    assert chat.invoke(QUESTION).content == answer(model, 60)
    assert "".join(chunk.content for chunk in chat.stream(QUESTION)) == answer(model, 60)
    assert isinstance(chat.with_structured_output(Animal).invoke("Describe a dog."), Animal)
    vectors = OpenAIEmbeddings(model="any", check_embedding_ctx_length=False, **common).embed_documents(["a", "b"])
    assert len(vectors) == 2


@part
def llama_index_openai_like():
    from gristmill.transport import http_client
    from llama_index.core.llms import ChatMessage
    from llama_index.llms.openai_like import OpenAILike

    own = llm()
    model = OpenAILike(
        model="any", api_base="http://localhost/v1", api_key="none", http_client=http_client(own),
        is_chat_model=True, temperature=0, max_tokens=40, context_window=2048,
    )  # fmt: skip
    message = ChatMessage(role="user", content=QUESTION)
    assert model.chat([message]).message.content == answer(own)
    assert "".join(chunk.delta or "" for chunk in model.stream_chat([message])) == answer(own)


@part
def haystack():
    import gristmill
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack.utils import Secret

    generator = OpenAIChatGenerator(
        api_key=Secret.from_token("none"), model="any", api_base_url="http://localhost/v1",
        generation_kwargs={"temperature": 0, "max_tokens": 40},
    )  # fmt: skip
    model = llm()
    # The generator has a client of its own, which is replaced.
    generator.warm_up()
    generator.client = gristmill.openai(model)
    replies = generator.run([ChatMessage.from_user(QUESTION)])["replies"]
    assert replies[0].text == answer(model)


@part
def dspy():
    import dspy

    import gristmill

    own = llm()
    model = gristmill.openai(own)

    class Local(dspy.BaseLM):
        """dspy's own way to a client: its `forward` returns OpenAI's reply."""

        def forward(self, prompt=None, messages=None, **keywords):
            messages = messages or [{"role": "user", "content": prompt}]
            return model.chat.completions.create(model="any", messages=messages, max_tokens=80, temperature=0)

    lm = Local(model="any")
    assert lm(QUESTION)[0] == answer(own, 80)


def main():
    wanted = sys.argv[2:] or list(PARTS)
    failed = []
    for name in wanted:
        start = time.monotonic()
        try:
            PARTS[name]()
            print(f"ok: {name}, {time.monotonic() - start:.1f} s", flush=True)
        except ImportError as error:
            failed.append(name)
            print(f"FAILED: {name}: {error}", flush=True)
        except Exception:
            failed.append(name)
            print(f"FAILED: {name}", flush=True)
            traceback.print_exc()
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)


main()
