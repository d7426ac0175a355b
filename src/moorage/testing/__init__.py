"""For authors of stores: builders, the contract of every store, and the model to compare a store with.

::

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def store(self) -> AsyncIterator[Store]:
            store = await MyStore.open(...)
            yield store
            await store.close()


    TestMyStoreAgainstTheModel = compared_with_model(MyStore).TestCase
"""

import pytest

for _module in ("builders", "contract", "model"):  # so that a failed assertion shows its values
    pytest.register_assert_rewrite(f"{__name__}.{_module}")
