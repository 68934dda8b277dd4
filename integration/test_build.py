"""The Go programs: found again in the cache, and the two decoders and the descriptors say the same of a message."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from integration import build, toolchain
from integration.harness import decoders
from koord.pb.cri import api_pb2 as pb

REQUEST = pb.CreateContainerRequest(
    pod_sandbox_id="sandbox",
    config=pb.ContainerConfig(
        envs=[pb.KeyValue(key="A", value=b"1")],
        linux=pb.LinuxContainerConfig(
            resources=pb.LinuxContainerResources(cpu_shares=512, unified={"memory.high": "1"})
        ),
    ),
)
# A later field wins: this is how the proxy edits a request without writing it anew.
PATCH = pb.CreateContainerRequest(
    config=pb.ContainerConfig(
        linux=pb.LinuxContainerConfig(resources=pb.LinuxContainerResources(cpu_shares=2, cpu_quota=-1))
    )
)


@pytest.mark.parametrize("decoder", [decoders.golang, decoders.gogo])
def test_a_message_that_is_none_is_an_error_and_does_not_end_the_batch(decoder: object) -> None:
    assert callable(decoder)
    answers = decoders.decode(
        decoder(), [("runtime.v1.VersionRequest", b"\0"), ("no.Such", b""), ("runtime.v1.Version", b"")]
    )
    assert [bool(answer.error) for answer in answers] == [True, True, True]


def test_both_decoders_merge_an_appended_patch_alike() -> None:
    message = [("runtime.v1.CreateContainerRequest", REQUEST.SerializeToString() + PATCH.SerializeToString())]
    (new,), (old,) = decoders.decode(decoders.golang(), message), decoders.decode(decoders.gogo(), message)
    assert new.error == old.error == ""
    assert new.fields["config"]["linux"] == old.fields["config"]["linux"]
    assert new.fields["config"]["linux"]["resources"] == {
        "cpu_shares": "2",
        "cpu_quota": "-1",
        "unified": {"memory.high": "1"},
    }
    merged = pb.CreateContainerRequest.FromString(message[0][1])
    assert pb.CreateContainerRequest.FromString(old.wire) == pb.CreateContainerRequest.FromString(new.wire) == merged


def test_descriptors_name_every_message_of_our_subset() -> None:
    (file,) = decoders.descriptors().file
    assert file.package == "runtime.v1"
    newer = {"RestorePodRequest", "RestoredContainer", "RestorePodResponse"}  # of cri-api 0.37, which is not built here
    assert set(pb.DESCRIPTOR.message_types_by_name) - {message.name for message in file.message_type} == newer


def test_assets_come_first_if_they_are_complete(tmp_path: Path) -> None:
    environment = {
        "KUBEBUILDER_ASSETS": str(tmp_path),
        "KOORD_CACHE": str(tmp_path / "cache"),
        "PATH": os.environ["PATH"],
    }
    program = tmp_path / "kubelet"
    program.touch(0o755)
    assert build.build("kubelet", environment) == tmp_path


def test_a_second_build_is_the_first_ones_directory() -> None:
    assert build.build("cri") == build.build("cri")


def test_a_go_mod_names_the_go_it_wants(tmp_path: Path) -> None:
    file = tmp_path / "go.mod"
    file.write_text("module x\n\ngo 1.26.8\n")
    assert toolchain.wanted(file) == (1, 26, 8)
    file.write_text("module x\n")
    with pytest.raises(toolchain.ToolchainError, match="no go line"):
        toolchain.wanted(file)


@pytest.mark.parametrize(
    ("said", "release"), [("", build.DEFAULT_RELEASE), ("1.36", "1.36"), ("oldest", min(build.RELEASES))]
)
def test_a_release_of_kubernetes_is_chosen(said: str, release: str) -> None:
    assert build.release({"KUBERNETES": said}) == release


def test_a_release_that_is_not_built_here_is_refused() -> None:
    with pytest.raises(build.BuildError, match=r"KUBERNETES=1\.20: not one of 1\.32, .*, oldest"):
        build.release({"KUBERNETES": "1.20"})
