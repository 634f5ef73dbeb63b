"""The queue in words."""

from workflows.queue import explain, parse_jobs

LINES = """\
7|RUNNING|3:21|11:00|node3|rule_train_wildcards_quick_cityscapes-deeplabv3_r50-pne-s0-0123abcd|None
8|PENDING|0:00|11:00||rule_evaluate_wildcards_quick_ade20k-ocrnet_w48-base-s0-4567cdef|(Resources)
9|PENDING|0:00|5:00||rule_examine_cityscapes|(AssocGrpGRES)
10|PENDING|0:00|5:00||(null)|Priority
"""


def test_jobs_are_told_by_what_they_do() -> None:
    jobs = parse_jobs(LINES)
    assert [job.describe() for job in jobs] == [
        "7  train cityscapes-deeplabv3_r50-pne-s0-0123abcd: running on node3 for 3:21 of 11:00",
        "8  evaluate ade20k-ocrnet_w48-base-s0-4567cdef: pending, waits until GPUs, cores or memory are free",
        "9  examine_cityscapes : pending, a limit of the account or the qos is reached (AssocGrpGRES)",
    ]


def test_reasons_are_put_into_words() -> None:
    down = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"
    assert explain(down) == "every node that it could use is down, drained or reserved"
    assert explain("SomethingNew") == "SomethingNew"
