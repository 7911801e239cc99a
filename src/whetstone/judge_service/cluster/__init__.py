"""The judge over the nodes of a cluster: one router, and on each node a judge of its own."""
