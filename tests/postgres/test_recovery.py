"""Backup and point-in-time recovery, as docs/operate.md tells it: what was deleted by mistake comes back."""

from __future__ import annotations

from pathlib import Path

from moorage.testing.faults import eventually
from moorage.testing.postgres import PostgresServer


def archiving(folder: str) -> dict[str, str]:
    """The settings that docs/operate.md asks for."""
    return {
        "wal_level": "replica",
        "archive_mode": "on",
        "archive_command": f"test ! -f {folder}/%f && cp %p {folder}/%f.part && mv {folder}/%f.part {folder}/%f",
        "max_wal_senders": "4",
    }


def test_the_page_archives_as_the_test_does() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operate.md").read_text(encoding="utf-8")
    compose = (Path(__file__).parents[2] / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    command = archiving("/archive")["archive_command"]
    assert f"archive_command = '{command}'" in page
    assert f"archive_command={command}" in compose


def test_a_database_goes_back_to_the_moment_before_a_mistake() -> None:
    with PostgresServer(durable=True, settings={"max_wal_senders": "4"}) as server:
        archive, backup = server.folder / "archive", server.folder / "backup"
        server.sql(f"COPY (SELECT 1) TO PROGRAM 'cat > /dev/null; mkdir {archive}'")  # as the user of the server
        for name, value in archiving(str(archive)).items():
            server.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        server.restart("fast")
        server.sql("CREATE TABLE kept (n int)")
        server.run("pg_basebackup", "-D", backup, "-d", server.url(), "--wal-method=none", "--checkpoint=fast")

        server.sql("INSERT INTO kept SELECT generate_series(1, 1000)")
        (moment,) = server.sql("SELECT clock_timestamp()")
        server.sql("DELETE FROM kept")  # the mistake
        (last,) = server.sql("SELECT pg_walfile_name(pg_switch_wal())")
        assert eventually(lambda: (archive / last).exists())
        server.stop("immediate")

        recovery = {
            "archive_mode": "off",
            "restore_command": f"cp {archive}/%f %p",
            "recovery_target_time": moment,
            "recovery_target_action": "promote",
        }
        with PostgresServer(durable=True, settings=recovery, backup=backup) as restored:
            assert eventually(lambda: restored.sql("SELECT pg_is_in_recovery()") == ["f"])
            assert restored.sql("SELECT count(*) FROM kept") == ["1000"]
