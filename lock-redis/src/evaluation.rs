//! Scripts run over a [`Connection`]: one run of one, or many in as few round trips as is wise.

use redis::{Cmd, FromRedisValue, Pipeline, RedisResult};

use crate::connection::Connection;
use crate::error::Failure;
use crate::pinned::Pinned;
use crate::script::{Call, Script};
use crate::transport::Request;

/// How many renewals go into one pipeline: enough to share a round trip, few enough to keep it short.
const PIPELINE: usize = 256;

impl Connection {
    /// Runs a script by its digest, and by its text if the server has forgotten it: then it certainly has not run.
    pub(crate) async fn run<T: FromRedisValue + Send>(&self, script: &Script, call: &Call<'_>) -> Result<T, Failure> {
        match self.command(&script.evalsha(call)).await {
            Err(failure) if failure.is_server_code("NOSCRIPT") => self.command(&script.eval(call)).await,
            answer => answer,
        }
    }

    /// Runs a script once per call, in as few round trips as is wise. The answers are in the order of the calls.
    pub(crate) async fn run_all(&self, script: &Script, calls: &[Call<'_>]) -> Vec<Result<i64, Failure>> {
        self.run_over(&mut Over::Any, script, calls).await
    }

    /// The same on one connection.
    pub(crate) async fn run_all_on(
        &self,
        pinned: &mut Pinned,
        script: &Script,
        calls: &[Call<'_>],
    ) -> Vec<Result<i64, Failure>> {
        self.run_over(&mut Over::Pinned(pinned), script, calls).await
    }

    async fn run_over(&self, over: &mut Over<'_>, script: &Script, calls: &[Call<'_>]) -> Vec<Result<i64, Failure>> {
        let mut answers = Vec::with_capacity(calls.len());
        for calls in calls.chunks(PIPELINE) {
            let mut chunk = self.run_chunk(over, calls.iter().map(|call| script.evalsha(call))).await;
            let forgotten: Vec<_> = (0..calls.len())
                .filter(|&at| matches!(&chunk[at], Err(failure) if failure.is_server_code("NOSCRIPT")))
                .collect();
            if !forgotten.is_empty() {
                let again = self.run_chunk(over, forgotten.iter().map(|&at| script.eval(&calls[at]))).await;
                for (at, answer) in forgotten.into_iter().zip(again) {
                    chunk[at] = answer;
                }
            }
            answers.append(&mut chunk);
        }
        answers
    }

    async fn run_chunk(
        &self,
        over: &mut Over<'_>,
        commands: impl ExactSizeIterator<Item = Cmd> + Send,
    ) -> Vec<Result<i64, Failure>> {
        if let (Over::Any, Some(cluster)) = (&over, self.cluster()) {
            return cluster.send_each(&commands.collect::<Vec<_>>()).await;
        }
        let count = commands.len();
        let mut pipeline = Pipeline::with_capacity(count);
        for command in commands {
            pipeline.add_command(command);
        }
        let pipeline: &Pipeline = pipeline.ignore_errors();
        let answers = match over {
            Over::Any => self.pipeline::<Vec<RedisResult<i64>>>(pipeline).await,
            Over::Pinned(pinned) => pinned.send(Request::Many(pipeline), self.config().request_limit).await,
        };
        match answers {
            Ok(answers) => answers.into_iter().map(|answer| answer.map_err(Failure::from)).collect(),
            Err(failure) => vec![Err(failure); count],
        }
    }
}

/// What a batch is sent over.
enum Over<'a> {
    Any,
    Pinned(&'a mut Pinned),
}
