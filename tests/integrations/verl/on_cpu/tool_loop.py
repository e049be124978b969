"""A tool loop that a random model walks through: any letter ends its turn, and any capital letter calls the tool.

Loaded by verl (``VERL_USE_EXTERNAL_MODULES``), whose own ``tool_agent`` it is a parser for.
"""

import string

from kaestat.integrations.verl.after_import import after_import

PARSER = "capitals"


def _register():
    from verl.experimental.agent_loop.tool_parser import FunctionCall, ToolParser

    @ToolParser.register(PARSER)
    class Capitals(ToolParser):
        @property
        def stop_token_ids(self):
            return self.tokenizer.convert_tokens_to_ids(list(string.ascii_letters))

        async def extract_tool_calls(self, responses_ids, tools=None):
            text = self.tokenizer.decode(responses_ids)
            calls = [FunctionCall(name="look", arguments="{}")] if text and text[-1] in string.ascii_uppercase else []
            return text, calls


after_import("verl.experimental.agent_loop.tool_parser", _register)
