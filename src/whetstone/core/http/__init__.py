"""Parts of HTTP servers and clients that the judge, the flow and the live view share."""
