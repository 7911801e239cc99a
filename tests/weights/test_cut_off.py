"""A replica on another host that is cut off in the middle of a version, and one that joins late."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
import torch

from tests.weights.test_followed import Rollout, Trained, section, trainer
from tests.weights.two_hosts import TRAINER, Hosts, ip, two_hosts
from whetstone.weights.offer import Offer

pytestmark = pytest.mark.slow


def test_a_replica_that_was_cut_off_and_one_that_is_late_have_the_same_bits(tmp_path: Path) -> None:
    settings = section(host=TRAINER, silence_s=2.0)
    with two_hosts() as hosts, hosts.on(hosts.trainer, lambda: trainer(settings, tmp_path)) as published:
        trained = Trained(published)
        early, late = Rollout(settings, seed=1), Rollout(settings, seed=2)
        first = trained.step(0)
        apply(hosts, early, first)
        assert early.serving == first
        # The link is cut while a version is on its way, which would take some 20 s.
        with torch.no_grad():
            for parameter in trained.model.parameters():
                parameter.neg_()
        ip_tc(hosts, "add", "rate", "16kbit")
        cut = trained.step(1)
        sent = bytes_sent(hosts)
        applying = threading.Thread(target=apply, args=(hosts, early, cut))
        applying.start()
        while bytes_sent(hosts) < sent + 8000 and applying.is_alive():
            time.sleep(0.01)
        hosts.link("down")
        applying.join()
        assert early.serving == first
        assert "does not answer" in early.said[-1]
        # Training goes on without it, and it with what it has.
        offers = [trained.step(number) for number in (2, 3)]
        apply(hosts, early, offers[-1])
        assert early.serving == first
        hosts.link("up")
        ip_tc(hosts, "del")
        for rollout in (early, late):
            while rollout.serving != offers[-1]:  # the neighbours find each other again
                apply(hosts, rollout, offers[-1])
            assert rollout.has(trained)
            rollout.weights.close()
        # Changes of every word are longer than the words.
        assert ": full, 0.0" in early.said[-1]


def apply(hosts: Hosts, rollout: Rollout, offer: Offer) -> None:
    hosts.on(hosts.replica, lambda: rollout.apply(offer))


def ip_tc(hosts: Hosts, what: str, *limit: str) -> None:
    """Limit what the trainer's host sends, or let it send again."""
    bucket = ["tbf", *limit, "burst", "2kb", "latency", "1s"] if limit else []
    ip("netns", "exec", hosts.trainer, "tc", "qdisc", what, "dev", "wire", "root", *bucket)


def bytes_sent(hosts: Hosts) -> int:
    shown = ip("-n", hosts.trainer, "-s", "-j", "link", "show", "wire")
    return int(json.loads(shown)[0]["stats64"]["tx"]["bytes"])
