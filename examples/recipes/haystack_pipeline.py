"""Haystack: the snapshots of a pipeline go to a store, and a killed pipeline goes on from there.

python haystack_pipeline.py --crash      # is killed while it writes
python haystack_pipeline.py              # writes, without reading again
"""

import sys
from signal import SIGKILL, raise_signal

from haystack import Pipeline, component
from haystack.core.errors import BreakpointException
from haystack.dataclasses.breakpoints import Breakpoint, PipelineSnapshot

import limpet


@component
class Read:
    @component.output_types(facts=str)
    def run(self, topic: str):
        print("reading about", topic)
        return {"facts": f"{topic} hold on to rocks"}


@component
class Write:
    @component.output_types(text=str)
    def run(self, facts: str):
        if "--crash" in sys.argv:
            raise_signal(SIGKILL)
        return {"text": f"Did you know that {facts}?"}


pipeline = Pipeline()
pipeline.add_component("read", Read())
pipeline.add_component("write", Write())
pipeline.connect("read", "write")


def run(scope, data):
    """Go on from the last snapshot, or begin. Haystack takes one where it pauses or fails."""
    last, names = scope.load(), list(pipeline.graph.nodes)
    snapshot = PipelineSnapshot.from_dict(last.state) if last else None
    keep = {"snapshot_callback": lambda snapshot: scope.save(snapshot.to_dict()).id}
    begin = names.index(snapshot.break_point.component_name) + 1 if snapshot else 0
    for name in names[begin:]:
        try:  # pause before each component
            pipeline.run(data, break_point=Breakpoint(name), pipeline_snapshot=snapshot, **keep)
        except BreakpointException as paused:
            snapshot = paused.pipeline_snapshot
    return pipeline.run(data, pipeline_snapshot=snapshot, **keep)["write"]["text"]


with limpet.open() as store:  # $LIMPET_URL, or else limpet.db in this folder
    report = store.scope("report")
    print(run(report, {"topic": "limpets"}))
    state = report.load().state  # as it was before the writing
    state["pipeline_state"]["inputs"]["serialized_data"]["write"]["facts"][0]["value"] = "they move"
    print(run(report.fork(report.load(), patch=state), {}))
