import tests.rollout.test_lease_protocol as t
from hypothesis import settings, Phase
L=settings(max_examples=500, stateful_step_count=60, deadline=None, report_multiple_bugs=False, phases=(Phase.generate,Phase.shrink))
class TestA(t.RoundsProtocol.TestCase): pass
class TestB(t.StaleProtocol.TestCase): pass
TestA.settings=L; TestB.settings=L
