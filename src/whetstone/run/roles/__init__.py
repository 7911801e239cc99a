"""The roles of an asynchronous run: a flow, rollout replicas, a trainer; who starts them on one machine."""
