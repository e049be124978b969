"""A worker that does whatever harm it is asked to; for the tests of worker pools."""

import os
import signal
import sys

from llm_experiments.verifiers.worker_loop import serve


def prepare():
    """Make the function that does harm."""

    def answer(request):
        match request:
            case ["memory", int(mib)]:
                return len(bytearray(mib << 20)) > 0
            case "spin":
                return pow(3, 10**9) > 0  # one call that no Python-level signal handler interrupts
            case "exit":
                os._exit(3)
            case "crash":
                os.kill(os.getpid(), signal.SIGSEGV)
            case "raise":
                raise ZeroDivisionError
            case "print":
                print('"right"', flush=True)
                os.write(1, b'"right"\n')
                return False
            case "light":
                return not {"torch", "transformers", "vllm", "jax"} & set(sys.modules)
            case _:
                return request == "yes"

    return answer


if __name__ == "__main__":
    serve(prepare)
