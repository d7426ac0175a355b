"""A session from its first message to its end, without an event loop.

    python examples/quickstart.py [URL]

Without a URL it uses the store of your configuration: MOORAGE_URL, else a file in your data folder.
"""

import sys

from moorage import sync


def main(url: str | None = None) -> None:
    with sync.connect(url) as moor:
        session = moor.create(agent="travel-planner", purpose="weekend in Genoa", parent=None)
        print(f"created    {session.id}")

        moor.append(session.id, "Find a hotel near the aquarium")
        moor.update(session.id, phase="planning", metadata={"city": "Genoa"})
        moor.context.put(session.id, "preference", "quiet street", ttl=3600)
        moor.suspend(session.id, checkpoint={"shortlist": ["Aurora", "Porto"]}, reason="the user is at lunch")
        print(f"suspended  in phase {moor.get(session.id).phase}")

        verdict = moor.should_resume(session.id)
        print(f"resumable  {verdict.decision} ({verdict.reason})")

        back = moor.resume(session.id)
        print(f"resumed    with {back.checkpoint}, {back.context} and {len(back.messages)} message")
        token = back.hold.token
        moor.append(session.id, {"role": "assistant", "content": "Hotel Aurora, two nights."}, token=token)
        moor.finalize(session.id, "completed", summary="Booked Hotel Aurora", token=token)

        for entry in moor.log(session.id):
            print(f"  {entry.number:>2}  {entry.kind:<10}  {entry.text or entry.data}")


if __name__ == "__main__":
    main(*sys.argv[1:2])
