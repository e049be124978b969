"""A worker that does whatever harm it is asked to; for the tests of worker pools."""

import os
import signal
import sys

from llm_experiments.verifiers.worker_loop import serve


def prepare(arguments: dict):
    """Make the function that does harm."""
    if arguments.get("refuse"):
        raise LookupError("nothing to work with")

    def answer(request):
        match request:
            case ["memory", int(mib)]:
                return len(bytearray(mib << 20))
            case "spin":
                return pow(3, 10**9) % 2  # one call that no Python-level signal handler interrupts
            case "exit":
                os._exit(3)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                raise ZeroDivisionError
            case "print":
                print('{"reply": "forged"}', flush=True)
                os.write(1, b'{"reply": "forged"}\n')
                return "printed"
            case "modules":
                return sorted(set(sys.modules) & {"torch", "transformers", "vllm", "jax"})
            case _:
                return request

    return answer


if __name__ == "__main__":
    serve(prepare)
