"""Runs one command in the workspace of an episode: ``shell -c COMMAND``. The first argument is a socket."""

import socket
import sys


def main() -> int:
    """Print what the command printed, and return its exit code."""
    place, *arguments = sys.argv[1:]
    if arguments and arguments[0].startswith("-") and len(arguments) > 1:
        command = arguments[1]
    else:
        command = sys.stdin.read()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(place)
        connection.sendall(command.encode(errors="replace"))
        connection.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    code, _, output = answer.partition(b"\n")
    if not code:
        sys.stderr.write("the episode has ended\n")
        return 125
    sys.stdout.buffer.write(output + (b"\n" if output and not output.endswith(b"\n") else b""))
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
