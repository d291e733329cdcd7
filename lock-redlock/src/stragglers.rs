use tokio::sync::watch;

/// Node calls that go on after the verdict, each round's in a task of its own.
///
/// Inside the call they would make every round as slow as its slowest node, and dropped they could neither be undone nor
/// renew the minority. A task ends within two request limits: that of the call, and that of its undoing. One whose
/// runtime ends first leaves what it was to undo to the ttl.
#[derive(Debug, Default)]
pub(crate) struct Stragglers {
    running: watch::Sender<usize>,
}

impl Stragglers {
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.running.send_modify(|running| *running += 1);
        let ended = Ended(self.running.clone());
        drop(tokio::spawn(async move {
            task.await;
            drop(ended);
        }));
    }

    /// Waits until none is running.
    pub(crate) async fn ended(&self) {
        let ended = self.running.subscribe().wait_for(|running| *running == 0).await.map(drop);
        ended.expect("this value keeps the sender");
    }
}

struct Ended(watch::Sender<usize>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.send_modify(|running| *running -= 1);
    }
}
