# SPDX-License-Identifier: Apache-2.0
# %% [markdown]
# From captures to verdicts, cell by cell: open it in Jupyter or an editor that knows `# %%`, or run it with
# `python examples/notebook.py`. It makes its own traffic and writes to a temporary folder; nothing is
# attached, and no privilege is needed.

# %%
import tempfile
from pathlib import Path

import polars as pl
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import GridSearchCV, GroupKFold

import wirewise as ww
from wirewise.datasets import write_capture
from wirewise.traffic import generate

scratch = tempfile.TemporaryDirectory(prefix="wirewise-")  # gone when Python ends
folder = Path(scratch.name)

# %% [markdown]
# Captures of two days: ordinary traffic, a SYN flood and an amplification attack, a file each.

# %%
MIX = {"web": 0.3, "dns": 0.1, "quic": 0.2, "syn-flood": 0.2, "udp-amplification": 0.2}
for day in (1, 2):
    (folder / f"day{day}").mkdir()
    packets = list(generate(seed=day, duration_s=4, packets=20_000, mix=MIX))
    for label in ("benign", "syn-flood", "udp-amplification"):
        frames = ((packet.time_ns, packet.frame) for packet in packets if packet.label == label)
        write_capture(folder / f"day{day}" / f"{label}.pcap", frames)

labels = {
    "version": 1,
    "rules": [
        {"label": "syn-flood", "capture": "syn-flood*.pcap", "all": True},
        {"label": "amplification", "capture": "udp-amplification*.pcap", "all": True},
    ],
    "otherwise": "benign",
}

# %% [markdown]
# A data frame: a row for each packet, its features computed by the program that is deployed. Say
# `frame="pandas"` for pandas.

# %%
feature_set = ww.PRESETS["hara2026"]
table = ww.features(folder / "day1", feature_set, labels)
table.group_by("label").agg(pl.len(), pl.col("flow").n_unique())

# %% [markdown]
# Any estimator. The packets of one flow are near copies of each other, so flows are kept together.

# %%
names = feature_set.feature_names
search = GridSearchCV(
    RandomForestClassifier(10, random_state=0), {"max_depth": [6, 10]}, cv=GroupKFold(3), scoring="f1_macro"
)
search.fit(table[names], table["label"].to_numpy(), groups=table["flow"].to_numpy())
print(search.best_params_, f"F1 {search.best_score_:.3f}")

# %% [markdown]
# A bundle: the model in integers and its feature extractor, as one eBPF program. On every row of the table it
# gives the class that the estimator gives.

# %%
compiled = ww.compile(search, feature_set, name="two-attacks", table=table)
compiled.write(folder / "two-attacks.wirewise")
agreement = compiled.bundle.manifest.fidelity or {}
print(f"{agreement['agree']:,} of {agreement['rows']:,} rows agree")
compiled

# %% [markdown]
# Verdicts on the second day, which nothing was trained on.

# %%
policy = {"version": 1, "classes": {"syn-flood": "drop", "amplification": "drop"}, "allow": {"ports": [22]}}
verdicts = ww.replay(folder / "day2", compiled, policy, mode="enforce", dropped=folder / "dropped.pcap")
truth = ww.features(folder / "day2", feature_set, labels)
judged = verdicts.join(truth.select("capture", "packet", "label"), on=["capture", "packet"])
print(judged.group_by("label").agg(pl.len(), (~pl.col("passed")).mean().alias("dropped")).sort("label"))

# %% [markdown]
# One packet, explained: the first that was dropped.

# %%
dropped = verdicts.filter(~pl.col("passed")).row(0, named=True)
explanation = ww.explain(dropped["capture"], dropped["packet"], compiled, policy, mode="enforce")
print(explanation, "program and reference agree" if explanation.agree else explanation.differences)
explanation

# %% [markdown]
# Where the time goes: in this kernel if privileges allow, else by the size of the code.

# %%
cost = ww.cost(compiled)
print(cost)
cost
