# Copyright The otelcol-stream Authors
# SPDX-License-Identifier: Apache-2.0
"""Wire formats of the providers: each turns the steps of a schedule into response text."""

import json
import time


def _sse(obj, event=None) -> str:
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(obj, separators=(',', ':'))}\n\n"


class OpenAIChat:
    """Chat Completions. Mistral's streams are the same, but always carry the usage."""

    name = "openai.chat"
    id_prefix = "chatcmpl"
    content_type = "text/event-stream; charset=utf-8"
    error500 = {"error": {"message": "Internal error", "type": "server_error", "code": "internal_error", "param": None}}

    def __init__(self, response_id, model, prompt_tokens, request):
        self.base = {"id": response_id, "object": "chat.completion.chunk", "created": int(time.time()), "model": model, "system_fingerprint": "fp_mock"}
        self.prompt_tokens = prompt_tokens
        self.reports_usage = bool((request.get("stream_options") or {}).get("include_usage"))

    def _chunk(self, delta, finish=None, **extra):
        return _sse({**self.base, "choices": [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}], **extra})

    def _usage(self, out, reasoning):
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": out,
            "total_tokens": self.prompt_tokens + out,
            "completion_tokens_details": {"reasoning_tokens": reasoning},
        }

    def opening(self):
        return self._chunk({"role": "assistant", "content": "", "refusal": None})

    def content(self, text, kind):
        return self._chunk({"reasoning_content": text} if kind == "r" else {"content": text})

    def single(self, text):
        return self._chunk({"role": "assistant", "content": text}, "stop")

    def finish(self, out, reasoning):
        return self._chunk({}, "stop")

    def usage(self, out, reasoning):
        return _sse({**self.base, "choices": [], "usage": self._usage(out, reasoning)}) if self.reports_usage else ""

    def done(self):
        return "data: [DONE]\n\n"

    def empty(self):
        return [("d", self.done())]

    def error(self):
        return _sse({"error": {"message": "The server had an error while processing your request", "type": "server_error", "code": "mid_stream_error", "param": None}})

    def whole(self, text, out, reasoning):
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        return {**self.base, "object": "chat.completion", "choices": [choice], "usage": self._usage(out, reasoning)}


class Mistral(OpenAIChat):
    name = "mistral.chat"

    def __init__(self, *args):
        super().__init__(*args)
        self.reports_usage = True

    def finish(self, out, reasoning):
        return self._chunk({"content": ""}, "stop", usage=self._usage(out, reasoning))

    def usage(self, out, reasoning):
        return ""


class OpenAIResponses:
    name = "openai.responses"
    id_prefix = "resp"
    content_type = "text/event-stream; charset=utf-8"
    error500 = OpenAIChat.error500

    def __init__(self, response_id, model, prompt_tokens, request):
        self.id, self.model, self.prompt_tokens, self.created = response_id, model, prompt_tokens, int(time.time())
        self.reports_usage = True
        self.sequence = 0
        self.index = -1
        self.block = None
        self.text = ""
        self.output = []

    def _event(self, kind, **fields):
        body = {"type": kind, "sequence_number": self.sequence, **fields}
        self.sequence += 1
        return _sse(body, kind)

    def _response(self, status, **fields):
        return {
            "id": self.id, "object": "response", "created_at": self.created, "status": status, "model": self.model, "output": [],
            "error": None, "incomplete_details": None, "instructions": None, "metadata": {}, "parallel_tool_calls": True,
            "temperature": 1, "tool_choice": "auto", "tools": [], "top_p": 1, "usage": None, **fields,
        }

    def _usage(self, out, reasoning):
        return {
            "input_tokens": self.prompt_tokens, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": out,
            "output_tokens_details": {"reasoning_tokens": reasoning}, "total_tokens": self.prompt_tokens + out,
        }

    def _message(self, text):
        part = {"type": "output_text", "text": text, "annotations": []}
        return part, {"id": "msg_" + self.id, "type": "message", "status": "completed", "role": "assistant", "content": [part]}

    def _close(self):
        if self.block is None:
            return ""
        if self.block == "c":
            part, item = self._message(self.text)
            where = {"item_id": item["id"], "output_index": self.index, "content_index": 0}
            out = self._event("response.output_text.done", **where, text=self.text, logprobs=[])
            out += self._event("response.content_part.done", **where, part=part)
        else:
            part = {"type": "summary_text", "text": self.text}
            item = {"id": "rs_" + self.id, "type": "reasoning", "summary": [part]}
            where = {"item_id": item["id"], "output_index": self.index, "summary_index": 0}
            out = self._event("response.reasoning_summary_text.done", **where, text=self.text)
            out += self._event("response.reasoning_summary_part.done", **where, part=part)
        self.output.append(item)
        self.block, self.text = None, ""
        return out + self._event("response.output_item.done", output_index=self.index, item=item)

    def _open(self, kind):
        self.block, self.text, self.index = kind, "", self.index + 1
        if kind == "c":
            item = {"id": "msg_" + self.id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
            part = {"type": "output_text", "text": "", "annotations": []}
            added = self._event("response.content_part.added", item_id=item["id"], output_index=self.index, content_index=0, part=part)
            return self._event("response.output_item.added", output_index=self.index, item=item) + added
        item = {"id": "rs_" + self.id, "type": "reasoning", "summary": []}
        part = {"type": "summary_text", "text": ""}
        head = self._event("response.output_item.added", output_index=self.index, item=item)
        return head + self._event("response.reasoning_summary_part.added", item_id=item["id"], output_index=self.index, summary_index=0, part=part)

    def opening(self):
        return self._event("response.created", response=self._response("in_progress")) + self._event("response.in_progress", response=self._response("in_progress"))

    def content(self, text, kind):
        out = "" if self.block == kind else self._close() + self._open(kind)
        self.text += text
        if kind == "r":
            return out + self._event("response.reasoning_summary_text.delta", item_id="rs_" + self.id, output_index=self.index, summary_index=0, delta=text)
        return out + self._event("response.output_text.delta", item_id="msg_" + self.id, output_index=self.index, content_index=0, delta=text, logprobs=[])

    def single(self, text):
        return self.opening() + self.content(text, "c")

    def finish(self, out, reasoning):
        closing = self._close()
        return closing + self._event("response.completed", response=self._response("completed", output=self.output, usage=self._usage(out, reasoning)))

    def usage(self, out, reasoning):
        return ""

    def done(self):
        return ""

    def empty(self):
        return []

    def error(self):
        return self._event("error", code="server_error", message="The server had an error while processing your request", param=None)

    def whole(self, text, out, reasoning):
        return self._response("completed", output=[self._message(text)[1]], usage=self._usage(out, reasoning))


class Anthropic:
    name = "anthropic"
    id_prefix = "msg"
    content_type = "text/event-stream; charset=utf-8"
    error500 = {"type": "error", "error": {"type": "api_error", "message": "Internal server error"}}

    def __init__(self, response_id, model, prompt_tokens, request):
        self.id, self.model, self.prompt_tokens = response_id, model, prompt_tokens
        self.reports_usage = True
        self.index = -1
        self.block = None

    def _event(self, kind, **fields):
        return _sse({"type": kind, **fields}, kind)

    def _close(self):
        if self.block is None:
            return ""
        out = ""
        if self.block == "r":
            out = self._event("content_block_delta", index=self.index, delta={"type": "signature_delta", "signature": "bW9jay1zaWduYXR1cmU="})
        self.block = None
        return out + self._event("content_block_stop", index=self.index)

    def opening(self):
        usage = {"input_tokens": self.prompt_tokens, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0, "output_tokens": 1}
        message = {"id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        return self._event("message_start", message=message) + self._event("ping")

    def content(self, text, kind):
        out = ""
        if self.block != kind:
            out = self._close()
            self.block, self.index = kind, self.index + 1
            block = {"type": "thinking", "thinking": "", "signature": ""} if kind == "r" else {"type": "text", "text": ""}
            out += self._event("content_block_start", index=self.index, content_block=block)
        delta = {"type": "thinking_delta", "thinking": text} if kind == "r" else {"type": "text_delta", "text": text}
        return out + self._event("content_block_delta", index=self.index, delta=delta)

    def single(self, text):
        return self.opening() + self.content(text, "c")

    def finish(self, out, reasoning):
        closing = self._close()
        return closing + self._event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": out}) + self._event("message_stop")

    def usage(self, out, reasoning):
        return ""

    def done(self):
        return ""

    def empty(self):
        return [("o", self.opening()), ("f", self.finish(0, 0))]

    def error(self):
        return self._event("error", error={"type": "overloaded_error", "message": "Overloaded"})

    def whole(self, text, out, reasoning):
        return {
            "id": self.id, "type": "message", "role": "assistant", "model": self.model, "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn", "stop_sequence": None, "usage": {"input_tokens": self.prompt_tokens, "output_tokens": out},
        }


class Cohere:
    """The v2 chat API."""

    name = "cohere.v2"
    id_prefix = "co"
    content_type = "text/event-stream"
    error500 = {"message": "internal server error"}

    def __init__(self, response_id, model, prompt_tokens, request):
        self.id, self.prompt_tokens = response_id, prompt_tokens
        self.reports_usage = True
        self.index = -1
        self.block = None

    def _event(self, kind, **fields):
        return _sse({"type": kind, **fields}, kind)

    def _usage(self, out):
        counts = {"input_tokens": self.prompt_tokens, "output_tokens": out}
        return {"billed_units": counts, "tokens": counts}

    def _close(self):
        if self.block is None:
            return ""
        self.block = None
        return self._event("content-end", index=self.index)

    def opening(self):
        message = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        return self._event("message-start", id=self.id, delta={"message": message})

    def content(self, text, kind):
        field = "thinking" if kind == "r" else "text"
        out = ""
        if self.block != kind:
            out = self._close()
            self.block, self.index = kind, self.index + 1
            out += self._event("content-start", index=self.index, delta={"message": {"content": {"type": field, field: ""}}})
        return out + self._event("content-delta", index=self.index, delta={"message": {"content": {field: text}}})

    def single(self, text):
        return self.opening() + self.content(text, "c")

    def finish(self, out, reasoning):
        closing = self._close()
        return closing + self._event("message-end", id=self.id, delta={"finish_reason": "COMPLETE", "usage": self._usage(out)})

    def usage(self, out, reasoning):
        return ""

    def done(self):
        return "data: [DONE]\n\n"

    def empty(self):
        return [("d", self.done())]

    def error(self):
        return self._event("message-end", id=self.id, delta={"finish_reason": "ERROR", "error": "generation failed"})

    def whole(self, text, out, reasoning):
        message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
        return {"id": self.id, "finish_reason": "COMPLETE", "message": message, "usage": self._usage(out)}


def format_for(path: str):
    """The wire format that serves a request path."""
    if "mistral" in path:
        return Mistral
    if path.endswith("/messages"):
        return Anthropic
    if path.endswith("/responses"):
        return OpenAIResponses
    if path.endswith("/v2/chat"):
        return Cohere
    return OpenAIChat
