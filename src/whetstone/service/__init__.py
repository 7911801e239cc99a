"""The judge behind HTTP, and its client, which has the interface of the local one."""
