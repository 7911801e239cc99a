"""The server that NeMo-Gym starts from this folder: programs in replies are judged by Whetstone."""

from whetstone.integrations.nemo_gym import code_server

CodeServer = code_server()

if __name__ == "__main__":
    CodeServer.run_webserver()
